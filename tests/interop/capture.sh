# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # $peer is of who sources it
#
# Sourced: what goes over the tap is captured, and then judged by strangers. Wireshark's dissector must find none of our
# packets malformed, and the peer's kernel must have found no ICRC wrong, which it says in its log.

# capture_start PEER LOGS
capture_start() {
	capture_peer=$1
	capture_logs=$2
	: >"$capture_logs/tcpdump"
	"$peer" there "$capture_peer" 10 'dmesg -c >/dev/null' >/dev/null
	# Root stays root: only so it can write there.
	"$peer" here "$capture_peer" tcpdump -i tap0 --immediate-mode -U -s 0 -B 65536 -Z root -w "$capture_logs/pcap" \
		udp port 4791 2>"$capture_logs/tcpdump" &
	capture=$!
	while kill -0 $capture 2>/dev/null && ! grep -q listening "$capture_logs/tcpdump"; do sleep 0.05; done
	kill -0 $capture 2>/dev/null || cat "$capture_logs/tcpdump"
}

capture_stop() {
	[ -n "${capture:-}" ] || return 0
	kill $capture 2>/dev/null
	wait $capture 2>/dev/null
	capture=
}

# dissect FILTER: the packets that a filter lets through, a line each. Protocols that guess what is inside are off.
dissect() {
	local guesses
	guesses=$(tshark -G heuristic-decodes 2>/dev/null |
		awk '$1 == "infiniband.payload" { print "--disable-protocol " $2 }')
	# shellcheck disable=SC2086 # a list of words
	tshark $guesses --disable-heuristic eth_over_ib -r "$capture_logs/pcap" -Y "$1" 2>/dev/null
}

# capture_judge NAME FAILED: keeps the packets under that name in PEER if anything is wrong with them, or something else failed.
capture_judge() {
	local ours='(ip.src == 10.78.0.1 || ipv6.src == fd78::1)' all bad wrong
	capture_stop
	all=$(dissect "$ours && infiniband" | wc -l)
	bad=$(dissect "$ours && (_ws.malformed || !infiniband)")
	wrong=$("$peer" there "$capture_peer" 10 'dmesg | grep -i icrc')
	echo "packets of ours: $all"
	[ -z "$bad" ] || printf 'malformed, for tshark:\n%s\n' "$(head -n 20 <<<"$bad")"
	[ -z "$wrong" ] || printf 'the peer said:\n%s\n' "$wrong"
	[ "$all" = 0 ] || [ -n "$bad$wrong" ] || [ "$2" != 0 ] || return 0
	mv "$capture_logs/pcap" "$capture_peer/$1.pcap"
	echo "captured in $capture_peer/$1.pcap"
	[ "$all" != 0 ] && [ -z "$bad$wrong" ]
}
