// Another project, built against the installed package: attaches to an engine that is not there.
#include <cstdio>

#include "clientlib/client.h"

int main() {
  wherry::AttachOptions options;
  options.instance = "consumer";
  options.run_dir = "/nonexistent/wherry";
  options.wait_ms = 0;
  const wherry::Result<wherry::Client> client = wherry::Client::attach(options);
  std::puts(client.ok() ? "attached?" : client.status().to_string().c_str());
  return client.code() == wherry::Code::kUnreachable ? 0 : 1;
}
