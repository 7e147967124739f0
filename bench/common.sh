# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034 # what it sets is for who sources it
#
# Sourced by what measures, whose arguments are [--quick] BUILD: $quick is 1 with that and empty without, $build and $uroce are what
# is measured, $here is where we are, and $work a directory that ends with us.
quick=
[ "${1:-}" != --quick ] || {
	quick=1
	shift
}
[ $# = 1 ] || {
	sed -n 's/^# \(usage: .*\)/\1/p' "$0" >&2
	exit 2
}
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
uroce=$build/bin/uroce

fail() {
	echo "bench: $*" >&2
	exit 1
}
[ -x "$uroce" ] || fail "$uroce: not built"

unset UROCE_TIMING UROCE_DEVICES UROCE_PROFILE UROCE_MEMORY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# The first two processors that we may use become $cpus: the server's and the client's.
find_processors() {
	mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r first last; do
		seq "$first" "${last:-$first}"
	done)
	[ ${#cpus[@]} -ge 2 ] || fail "needs two processors"
}
