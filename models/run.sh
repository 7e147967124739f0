#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Verifies a model: run.sh MODEL [DEFINITION...]. A definition is NAME or NAME=VALUE; one that begins with BUG_ breaks
# a rule of the protocol, and then the model must find the error, or this fails.
#
# Searches for failed assertions and for cycles: our models have none when they are right. 0 when it went as it must.
set -eu

[ $# -ge 1 ] || { echo "usage: $0 MODEL [DEFINITION...]" >&2; exit 2; }
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
cd "$work"
# shellcheck disable=SC2086 # a list of words
spin $flags -a "$model" >spin.out || { cat spin.out >&2; exit 1; }
cc -w -O2 -DNP -DNOFAIR -DCOLLAPSE -DMEMLIM=2000 -DVECTORSZ=2048 -o pan pan.c
./pan -l -E -n -m100000 >pan.out 2>&1 || { cat pan.out >&2; exit 1; }

grep -E 'errors:|states, stored|memory usage|elapsed' pan.out || true
if grep -Eq 'out of memory|max search depth too small|Search not completed' pan.out && ! grep -q '^pan:.*\(assertion\|cycle\)' pan.out; then
	cat pan.out >&2
	exit 1
fi
if grep -q 'errors: 0' pan.out; then
	found=pass
else
	found=error
fi
if [ $found = $expect ]; then
	exit 0
fi
if [ $expect = error ]; then
	echo "$0: the broken rule went unnoticed" >&2
else
	cat pan.out >&2
	spin $flags -t -p -g "$model" 2>/dev/null | tail -n 200 >&2
fi
exit 1
