#include "engine/control/handle_table.h"

#include <utility>

namespace wherry::engine {

uint64_t HandleTable::add(Holding holding) {
  ++counts_[static_cast<uint8_t>(holding.kind)];
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.push_back({first_generation_, nullptr});
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Slot& slot = slots_[index];
  slot.holding = std::make_unique<Holding>(std::move(holding));
  return make_handle(slot.generation, index);
}

Holding* HandleTable::find(uint64_t handle) {
  const auto index = static_cast<uint32_t>(handle);
  if (index >= slots_.size()) return nullptr;
  Slot& slot = slots_[index];
  if (slot.holding == nullptr || slot.generation != handle >> 32) return nullptr;
  return slot.holding->going ? nullptr : slot.holding.get();
}

void HandleTable::erase(uint64_t handle) {
  const auto index = static_cast<uint32_t>(handle);
  Slot& slot = slots_[index];
  --counts_[static_cast<uint8_t>(slot.holding->kind)];
  slot.holding.reset();
  // 0 is left out, so that the handle 0 never means anything.
  if (++slot.generation == 0) slot.generation = 1;
  free_.push_back(index);
}

void HandleTable::for_each(const std::function<void(uint64_t, Holding&)>& visit) {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].holding != nullptr)
      visit(make_handle(slots_[i].generation, i), *slots_[i].holding);
  }
}

std::unique_ptr<const ClientTable> HandleTable::snapshot() const {
  auto table = std::make_unique<ClientTable>();
  table->entries.resize(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.holding == nullptr || slot.holding->going) continue;
    table->entries[i] = {slot.generation, slot.holding->rights, slot.holding->view.get()};
  }
  return table;
}

}  // namespace wherry::engine
