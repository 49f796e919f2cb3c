// Kernels and their expressions as text.
#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "ir/index.h"
#include "ir/kernel.h"

namespace lazuli {
namespace {

// Names axes for printing: a later axis with the name of an earlier one gets a number.
class AxisNames {
 public:
  const std::string& operator()(const NodeRef& axis) {
    std::string& name = names_[axis.get()];
    if (!name.empty()) return name;
    const std::string& wanted = std::get<VarArg>(axis->arg).name;
    name = wanted;
    for (int i = 2; !taken_.insert(name).second; i++) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

 private:
  std::unordered_map<const Node*, std::string> names_;
  std::set<std::string> taken_;
};

// Prints the expression of one value. Nodes used more than once, and long ones, get a line of their
// own in `out`, so that the text is linear in the number of nodes. Without a kernel, its values and
// arguments go by number.
class ExpressionPrinter {
 public:
  ExpressionPrinter(const Kernel* kernel, AxisNames& axes, std::string* out)
      : kernel_(kernel), axes_(axes), out_(out) {}

  std::string print(const NodeRef& root) {
    std::unordered_map<const Node*, int> uses;
    visit(root, [&](const NodeRef& n) {
      for (const NodeRef& s : n->src) uses[s.get()]++;
    });
    visit(root, [&](const NodeRef& n) {
      if (text_.count(n.get())) return;
      std::string t = one(*n);
      const bool leaf = n->src.empty() || n->op == Op::Lin;
      if (out_ && n.get() != root.get() && !leaf && (uses[n.get()] > 1 || t.size() > 72)) {
        *out_ += fmt::format("    t{} = {}\n", temporaries_, t);
        t = fmt::format("t{}", temporaries_++);
      }
      text_[n.get()] = std::move(t);
    });
    return text_[root.get()];
  }

 private:
  const std::string& of(const NodeRef& n) const { return text_.at(n.get()); }
  std::string argument(int64_t slot) const {
    return kernel_ ? kernel_->arguments[static_cast<size_t>(slot)].name
                   : fmt::format("argument{}", slot);
  }
  std::string value(int64_t id) const {
    return kernel_ ? kernel_->find_value(static_cast<int>(id)).second->name
                   : fmt::format("value{}", id);
  }
  std::string list(const Node& n) const {
    std::string r;
    for (const NodeRef& s : n.src) r += (r.empty() ? "" : ", ") + of(s);
    return r;
  }
  std::string sum(const Node& n) const {
    const Ints& c = n.ints();
    std::string r;
    for (size_t i = 0; i < n.src.size(); i++) {
      const int64_t k = c[i + 1];
      if (i > 0) {
        r += k < 0 ? " - " : " + ";
      } else if (k < 0) {
        r += "-";
      }
      if (k != 1 && k != -1) r += fmt::format("{}*", k < 0 ? -k : k);
      r += of(n.src[i]);
    }
    if (c[0] != 0) r += fmt::format(" {} {}", c[0] < 0 ? "-" : "+", c[0] < 0 ? -c[0] : c[0]);
    return r;
  }
  std::string one(const Node& n) {
    switch (n.op) {
      case Op::Const: {
        const Scalar v = const_scalar(n);
        if (n.dtype == DType::I64) return std::to_string(v.as_int());
        if (n.dtype == DType::Bool) return v.as_int() ? "true" : "false";
        if (!v.is_float()) return fmt::format("{}:{}", v.as_int(), name(n.dtype));
        return n.dtype == DType::F32 ? fmt::format("{}f", static_cast<float>(v.as_double()))
                                     : fmt::format("{}:{}", v.as_double(), name(n.dtype));
      }
      case Op::Var:
        return axes_(NodeRef(&n));
      case Op::Lin:
        return sum(n);
      case Op::FDiv:
        return fmt::format("(({}) // {})", of(n.src[0]), n.integer());
      case Op::FMod:
        return fmt::format("(({}) % {})", of(n.src[0]), n.integer());
      case Op::Load: {
        const std::string valid = n.src.size() > 1 ? " if " + of(n.src[1]) : "";
        return fmt::format("{}[{}{}]", argument(n.integer()), of(n.src[0]), valid);
      }
      case Op::Read:
        return fmt::format("{}({})", value(n.integer()), list(n));
      case Op::Cast:
      case Op::Bitcast:
        return fmt::format("{}.{}({})", name(n.op), name(n.dtype), list(n));
      default:
        return fmt::format("{}({})", name(n.op), list(n));
    }
  }

  const Kernel* kernel_;
  AxisNames& axes_;
  std::string* out_;
  std::unordered_map<const Node*, std::string> text_;
  int temporaries_ = 0;
};

}  // namespace

std::string index_text(const NodeRef& n) {
  AxisNames axes;
  return ExpressionPrinter(nullptr, axes, nullptr).print(n);
}

std::string print_algorithm(const Kernel& kernel) {
  AxisNames axes;
  std::string out = fmt::format("kernel {}\n", kernel.name);
  for (size_t i = 0; i < kernel.arguments.size(); i++) {
    const KernelArgument& a = kernel.arguments[i];
    out += fmt::format("  {} {}: {}[{}]\n", a.output ? "output" : "input", a.name, name(a.dtype),
                       a.size);
  }
  for (const auto& s : kernel.stages) {
    out += fmt::format("  stage {}", s->name);
    for (size_t i = 0; i < s->axes.size(); i++) {
      out += fmt::format(" {}:{}", axes(s->axes[i]), s->axes[i]->hi + 1);
      const auto print_bound = [&](const char* relation, const std::map<int, NodeRef>& bounds) {
        const auto it = bounds.find(static_cast<int>(i));
        if (it == bounds.end()) return;
        out += relation + ExpressionPrinter(&kernel, axes, &out).print(it->second);
      };
      print_bound(" >= ", s->begin);
      print_bound(" < ", s->limit);
      if (const auto bound = s->bound.find(static_cast<int>(i)); bound != s->bound.end()) {
        out += " to " + index_text(bound->second);
      }
    }
    out += "\n";
    for (const Value& v : s->values) {
      std::string dims, lines;
      for (const NodeRef& d : v.dims) dims += (dims.empty() ? "" : ", ") + axes(d);
      const std::string text = ExpressionPrinter(&kernel, axes, &lines).print(v.expr);
      out += lines;
      out += fmt::format(
          "    {}({}){} = ", v.name, dims,
          v.slot < 0 ? "" : " -> " + kernel.arguments[static_cast<size_t>(v.slot)].name);
      if (v.reduces()) {
        out += std::string(name(v.reduce)) + "{";
        for (size_t a = 0, n = 0; a < s->axes.size(); a++) {
          if (!s->keeps(v, static_cast<int>(a))) out += (n++ ? ", " : "") + axes(s->axes[a]);
        }
        out += "} ";
      }
      if (v.place_of >= 0) {
        out += fmt::format("place of {} along ", kernel.find_value(v.place_of).second->name);
      }
      out += text + "\n";
    }
  }
  return out;
}

}  // namespace lazuli
