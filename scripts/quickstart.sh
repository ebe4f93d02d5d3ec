#!/usr/bin/env bash
# From a fresh clone to a model that answers: installs what is missing, builds moepack, converts the
# demo checkpoint of the repository into a model directory (build/demo-model), asks it to call a
# tool, and prints the call and the speed.
#
# usage: scripts/quickstart.sh [--prompt N] [--help]
#   --prompt N   which of the 64 prompts of the demo to ask (0 to 63; default 3)
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

prompt_number=3
while (($# > 0)); do
  case "$1" in
    --prompt)
      if ! [[ ${2:-} =~ ^[0-9]{1,2}$ ]] || ((10#$2 > 63)); then
        die "--prompt wants a number from 0 to 63"
      fi
      prompt_number=$((10#$2))
      shift 2
      ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option $1; see --help" ;;
  esac
done

checkpoint="$repo_root/tests/golden/demo-moe-mlx-4bit"
model="$repo_root/build/demo-model"
moepack="$repo_root/build/release/bin/moepack"

# field NAME: a field of the chosen prompt. The last newline of the prompt matters, so it goes
# through a file-like argument that keeps it.
field() {
  python3 - "$checkpoint/golden/toolcalls.jsonl" "$prompt_number" "$1" <<'PYTHON'
import json, sys
path, number, name = sys.argv[1:]
with open(path, encoding="utf-8") as lines:
    record = json.loads(lines.readlines()[int(number)])
value = record["messages"][-1]["content"] if name == "question" else record[name]
sys.stdout.write(value if isinstance(value, str) else json.dumps(value))
PYTHON
}

# Reads the answer on stdin, prints NAME(ARGUMENTS); fails when it holds no call.
show_call() {
  python3 -c '
import json, sys
answer = sys.stdin.read()
try:
    call = json.loads(answer[answer.index("{"):answer.rindex("}") + 1])
    arguments = call["arguments"].items()
    print("%s(%s)" % (call["name"], ", ".join("%s=%s" % (k, json.dumps(v)) for k, v in arguments)))
except (ValueError, KeyError, AttributeError, TypeError) as error:
    sys.exit("the answer is no tool call (%s): %r" % (error, answer))
'
}

"$repo_root/scripts/install_deps.sh"
build_preset release --target moepack

say "moepack convert: the demo checkpoint becomes a model directory"
rm -rf "$model"
"$moepack" convert "$checkpoint" -o "$model"

prompt="$(field prompt && printf x)"
prompt="${prompt%x}"
say "moepack run: $(field question)"
answer="$("$moepack" run "$model" -p "$prompt" -n 96 --temp 0)"
printf '\nquestion: %s\nanswer:   %s\n' "$(field question)" "${answer//$'\n'/ }"
printf 'call:     '
show_call <<<"$answer"
printf 'expected: '
field expected | show_call
say "the model lies in build/demo-model; try: build/release/bin/moepack --help"
