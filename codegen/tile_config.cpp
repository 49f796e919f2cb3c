#include "codegen/tile_config.h"

#include <algorithm>

namespace lazuli {

TileConfig tile_config(const TileShape& t) {
  constexpr size_t kRowBytes = 16, kRows = 48;  // where the fields of LDTILECFG begin
  TileConfig c{};
  c[0] = 1;
  const auto set = [&](int number, int rows, int words) {
    const auto r = static_cast<size_t>(number);
    c[kRowBytes + 2 * r] = static_cast<uint8_t>(4 * words);
    c[kRows + r] = static_cast<uint8_t>(rows);
  };
  for (int i = 0; i < t.row_registers(); i++) {
    const int rows = std::min(t.rows - TileShape::kRows * i, TileShape::kRows);
    set(4 + i, rows, TileShape::kStep);
    for (int j = 0; j < t.column_registers(); j++) {
      const int columns = std::min(t.columns - TileShape::kColumns * j, TileShape::kColumns);
      set(2 * i + j, rows, columns);
      set(6 + j, TileShape::kStep, columns);
    }
  }
  return c;
}

const TileShape* largest_tile(const std::vector<Instruction>& body) {
  const TileShape* largest = nullptr;
  for (const Instruction& i : body) {
    const TileShape* t = i.code == Code::TileDot ? &i.tile : largest_tile(i.body);
    if (t && (!largest || t->rows * t->columns > largest->rows * largest->columns)) largest = t;
  }
  return largest;
}

}  // namespace lazuli
