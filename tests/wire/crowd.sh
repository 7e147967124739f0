#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: crowd.sh UROCE CROWD COUNT SECONDS [pods]
#
# COUNT processes on each of two hosts for so many seconds (crowd.c). Each run has another seed, of which what happens to whom
# follows, if not when; with SEED in the environment it is that one.
set -u

uroce=$1 crowd=$2 count=$3 seconds=$4 pods=${5-}
seed=${SEED:-$(date +%s)}
board=$(mktemp)
out=$(mktemp)
trap 'rm -f "$board" "$out"' EXIT

echo "== SEED=$seed $0 $*"
found=0
"$uroce" lab 2 -- "$crowd" "$board" "$count" "$seconds" "$seed" $pods >"$out" 2>&1 || found=$?
case $found in
125) echo "skipped: $(cat "$out")"; exit 77 ;;
77) sed -n 's/^host[12]: skipped: /skipped: /p' "$out"; exit 77 ;;
esac
cat "$out"
exit $found
