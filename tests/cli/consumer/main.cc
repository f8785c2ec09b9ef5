#include <cstdio>
#include <string>

#include "shm/status.h"

int main() {
  const wherry::Status status(wherry::Code::kDraining, "built against the installed package");
  std::puts(status.to_string().c_str());
  return wherry::code_from_name("DRAINING") == status.code() ? 0 : 1;
}
