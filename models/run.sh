#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Verifies a model: run.sh [--assertions] MODEL [DEFINITION...]. A definition is NAME or NAME=VALUE; one that begins
# with BUG_ breaks a rule of the protocol, and then the model must find an error, or this fails.
#
# Searches for failed assertions and for cycles, of which our models have none when they are right; with --assertions,
# which needs half as much memory, for failed assertions only. Exits 0 when it went as it must.
set -eu

mode=
options="-DNP -DNOFAIR"
search=-l
if [ "${1-}" = --assertions ]; then
	mode=assertions
	options=-DSAFETY
	search=
	shift
fi
[ $# -ge 1 ] || { echo "usage: $0 [--assertions] MODEL [DEFINITION...]" >&2; exit 2; }
model=$(cd "$(dirname "$0")" && pwd)/$1.pml
shift
[ -r "$model" ] || { echo "$0: no model $model" >&2; exit 2; }

expect=pass
flags=
for definition; do
	case $definition in BUG_*) expect=error ;; esac
	flags="$flags -D$definition"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"
# shellcheck disable=SC2086 # lists of words
{
	spin $flags -a "$model" >spin.out || { cat spin.out >&2; exit 1; }
	cc -w -O2 $options -DCOLLAPSE -DMEMLIM=2000 -DVECTORSZ=2048 -o pan pan.c
	# -E: a process that waits for ever is no error in itself; the models assert what must be true when all wait.
	./pan $search -E -n -m10000 >pan.out 2>&1 || { cat pan.out >&2; exit 1; }
}

grep -E '^pan:.*(assertion|cycle)|errors:|states, stored|total actual|elapsed' pan.out
if grep -q '^pan:.*\(assertion violated\|non-progress cycle\)' pan.out; then
	found=error
elif grep -q 'errors: 0' pan.out && ! grep -q 'Search not completed\|max search depth too small' pan.out; then
	found=pass
else
	cat pan.out >&2 # out of memory, or a model that makes no sense
	exit 1
fi
[ $found = $expect ] && exit 0
if [ $expect = error ]; then
	echo "$0: the broken rule went unnoticed${mode:+ by assertions alone}" >&2
else
	# shellcheck disable=SC2086
	cp "$model" . && spin $flags -t -p -g "$(basename "$model")" | tail -n 200 >&2
fi
exit 1
