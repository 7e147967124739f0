#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: mckey.sh UROCE FAMILY GROUP
#
# The distribution's mckey between two hosts of uroce lab: one receives five datagrams to the group, the other joins, and sends five,
# until the first has them. FAMILY: IPV4 or IPV6.
set -u

uroce=$1 family=$2 group=$3
done=$(mktemp -u)
trap 'rm -f "$done" "$done.out"' EXIT

reason=$("$uroce" lab 1 -- true 2>&1) || { echo "skipped: $reason"; exit 77; }
timeout 60 "$uroce" lab 2 -- \
	sh -c "mckey -b \$UROCE_LAB_$family -m $group -C 5; status=\$?; touch $done; exit \$status" :: \
	sh -c "until [ -e $done ]; do mckey -b \$UROCE_LAB_$family -m $group -s -C 5 || exit; done" >"$done.out" 2>&1
status=$?
grep -q '^host1: return status 0' "$done.out" && grep -q '^host1: data transfers complete' "$done.out" || status=1
[ $status = 0 ] || cat "$done.out"
exit $status
