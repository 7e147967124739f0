#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: addresses.sh DATAGRAMS        in a host of uroce lab
#
# Addresses and interfaces come and go while a program has its device open: the distribution's ibv_asyncwatch says which events it
# got, which must be those of a card. And what is sent to the new address arrives.
set -u

interface=$(ip -br link | awk '$1 != "lo" { sub(/@.*/, "", $1); print $1; exit }')
out=$(mktemp)
trap 'kill $watch 2>/dev/null; rm -f "$out"' EXIT

fifo=$out.fifo
mkfifo "$fifo"
UROCE_TRANSPORT=roce "$1" appear 10.98.0.1 >"$fifo" &
appear=$!
exec 3<"$fifo"
rm "$fifo"
read -r _ <&3
ip address add 10.98.0.1/24 dev "$interface"
wait $appear || exit 1

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
