#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: addresses.sh        in a host of uroce lab
#
# Addresses and interfaces come and go while a program has its device open: the distribution's ibv_asyncwatch says which events it
# got, which must be those of a card.
set -u

interface=$(ip -br link | awk '$1 != "lo" { sub(/@.*/, "", $1); print $1; exit }')
out=$(mktemp)
trap 'kill $watch 2>/dev/null; rm -f "$out"' EXIT

stdbuf -oL ibv_asyncwatch >"$out" 2>&1 &
watch=$!

seen=0
# wait_for EVENT: one more of them than were there before, within 10 s.
wait_for() {
	for i in $(seq 500); do
		tail -n "+$((seen + 1))" "$out" | grep -q "$1" && { seen=$(wc -l <"$out"); return; }
		sleep 0.02
	done
	echo "no $1 after: $2"
	cat "$out"
	exit 1
}

wait_for 'async event FD' start
ip address add 10.99.0.1/24 dev "$interface"
wait_for IBV_EVENT_GID_CHANGE 'an address came'
ip address del 10.99.0.1/24 dev "$interface"
wait_for IBV_EVENT_GID_CHANGE 'an address went'
ip link set "$interface" down
ip link set lo down
wait_for IBV_EVENT_PORT_ERR 'all interfaces went down'
ip link set lo up
wait_for IBV_EVENT_PORT_ACTIVE 'an interface came up'
