// wherry-demo: one part of the demo. tools/demo.sh runs all of them.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/demo/demo.h"

int main(int argc, char** argv) {
  wherry::demo::DemoOptions options;
  CLI::App app(
      "One part of Wherry's demo: prefill computes the KV cache of a prompt, decode pulls it "
      "through the engine and\n"
      "writes the text on, check computes everything again and compares. tools/demo.sh runs all "
      "three.\n"
      "Exit status: 0 all is well, 1 a check failed or something went wrong, which is said on "
      "standard error.");
  app.require_subcommand(1);
  app.add_option("--engine", options.engine, "Name of the engine")->capture_default_str();
  app.add_option("--run-dir", options.run_dir,
                 "Its run directory, when it is not where the name says");
  app.add_option("--model", options.model, "The weights: tools/demo/model/tiny_lm.safetensors")
      ->required();
  CLI::App* prefill = app.add_subcommand("prefill", "Compute and publish the prompt's KV cache");
  CLI::App* decode = app.add_subcommand("decode", "Pull the cache and write the text on");
  CLI::App* check = app.add_subcommand("check", "Compute alone and compare");
  for (CLI::App* part : {prefill, check})
    part->add_option("--prompt", options.prompt, "The prompt")->required();
  decode->add_option("--tokens", options.tokens, "Length of the continuation")
      ->capture_default_str();
  decode->add_flag("--corrupt", options.corrupt,
                   "Flip a byte of a pulled block: the check must find it");
  CLI11_PARSE(app, argc, argv);

  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // the parts' lines in the order of what happened
  const wherry::Status status = *prefill  ? wherry::demo::run_prefill(options)
                                : *decode ? wherry::demo::run_decode(options)
                                          : wherry::demo::run_check(options);
  if (status.ok()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", app.get_subcommands()[0]->get_name().c_str(),
               status.to_string().c_str());
  return 1;
}
