#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: trace_capture.sh PROGRAM GOLDEN ICRC
#
# What tshark sees in the capture that PROGRAM writes is what GOLDEN says: the packets in order, their headers, no fault of any
# layer, checksums right; ICRC (a script) finds the ICRC right. With GOLDEN=new what is seen is printed. $EMULATOR, if set, runs PROGRAM.
set -eu

command -v tshark >/dev/null || { echo "skipped: tshark is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2086 # a list of words
${EMULATOR-} "$1" "$work/capture.pcapng"
/usr/bin/python3 "$3" "$work/capture.pcapng" >"$work/seen"
# Its guess that any payload may be NFS's takes an empty one for a malformed packet.
see() {
	tshark -n --disable-heuristic rpcrdma_infiniband -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -r "$work/capture.pcapng" "$@" 2>"$work/err" ||
		{ cat "$work/err"; exit 1; }
}
see -Y '_ws.malformed || _ws.expert.severity == error || ip.checksum.status == "Bad" || udp.checksum.status == "Bad"' >"$work/faults"
[ ! -s "$work/faults" ] || { cat "$work/faults"; exit 1; }
see -T fields -E separator='|' -e frame.interface_name -e frame.time_relative -e frame.len -e frame.cap_len \
	-e ip.src -e ipv6.src -e infiniband.bth.opcode -e infiniband.bth.se -e infiniband.bth.a -e infiniband.bth.destqp -e infiniband.bth.psn \
	-e infiniband.reth.va -e infiniband.reth.dmalen -e infiniband.aeth.syndrome -e infiniband.aeth.msn -e infiniband.immdt \
	-e frame.comment >>"$work/seen"
[ "$2" != new ] || { cat "$work/seen"; exit 0; }
diff "$2" "$work/seen"
