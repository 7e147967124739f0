#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: trouble.sh UROCE VERIFY SECONDS ROWS OPTIONS...
#
# The verifying client (tests/conformance) between two hosts whose link has the troubles that OPTIONS name (of uroce lab): rows
# that fit the regular expression ROWS, with one seed after the other until so many seconds have passed, once at least. Each byte is
# compared. What fails is repeated by the line that is printed.
set -u

uroce=$1 verify=$2 seconds=$3 rows=$4
shift 4

out=$(mktemp)
trap 'rm -f "$out"' EXIT

found=0
"$uroce" lab 1 "$@" -- true 2>"$out" || found=$?
[ $found != 125 ] || { echo "skipped: $(cat "$out")"; exit 77; }

end=$(($(date +%s) + seconds))
seed=0
while
	seed=$((seed + 1))
	echo "== uroce lab 2 $* --seed=$seed -- verify --row '$rows' --seed $seed --listen 9999 ::" \
		"verify --row '$rows' --seed $seed --connect host1:9999"
	"$uroce" lab 2 "$@" --seed=$seed -- "$verify" --row "$rows" --seed $seed --listen 9999 :: \
		"$verify" --row "$rows" --seed $seed --connect host1:9999 >"$out" 2>&1 || { cat "$out"; exit 1; }
	tail -n 1 "$out"
	[ "$(grep -c ' rows, 0 failed$' "$out")" = 2 ] || { cat "$out"; exit 1; }
	[ "$(date +%s)" -lt $end ]
do :; done
