// Puts the values of a kernel into stages: beside others over the same axes where that is possible.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace lazuli {

/// A value that is to be computed.
struct NewValue {
  std::string name;
  NodeRef expr;
  std::vector<NodeRef> kept = {}, reduced = {};  // its axes
  Op reduce = Op::Count_;                        // over the reduced ones
  int slot = -1;                                 // of the argument that it is stored to
  bool part = false;  // part of a sum over rows: stands beside what the rows store
};

class StageWriter {
 public:
  /// Adds a value to a stage over the same axes, if all it reads is there already, or to a new one.
  /// Returns its id.
  int add(NewValue v);

  Kernel kernel;

 private:
  // What host() asks about stages and values, kept so that no expression is walked twice.
  struct StageFacts {
    bool contraction = false, reads_contraction = false, pointwise = false;
  };
  struct ValueFacts {
    size_t stage = 0;
    std::vector<NodeRef> dims;
    bool reduces = false;
  };

  const ValueFacts& value_of(const NodeRef& read) const {
    return values_.at(static_cast<size_t>(read->integer()));
  }
  size_t host(const NewValue& v, const std::vector<NodeRef>& axes,
              const std::vector<NodeRef>& reads) const;

  std::vector<StageFacts> stages_;
  std::vector<ValueFacts> values_;    // by id
  std::map<std::string, int> names_;  // how often a name was wanted
};

}  // namespace lazuli
