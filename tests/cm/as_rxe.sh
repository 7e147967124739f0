#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: as_rxe.sh UROCE PCAPS
#
# What the connection manager sends between two hosts of uroce lab, when the programs run of which PCAPS has what Linux's rdma_cm sent
# over rxe: tshark finds nothing malformed in it, and each kind of message that was sent there is sent here, and is the same byte by
# byte, reserved ones too, where it does not name somebody: comm IDs, QPNs, PSNs, GUIDs, addresses and their
# ports, flow labels; but for what a device says of its own speed.
set -uf

uroce=$1
pcaps=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for program in tshark tcpdump rping ucmatose udaddy rdma_server rstream; do
	command -v $program >/dev/null || { echo "skipped: $program is not installed"; exit 77; }
done
reason=$("$uroce" lab 1 -- true 2>&1) || { echo "skipped: $reason"; exit 77; }

# messages NAME FILE: each kind once: BTH and DETH but for M and AckReq, which UD does not use; the attribute ID; the MAD, with ** for
# the bytes that name somebody.
messages() {
	tshark -n -r "$2" -Y infiniband.mad -T fields -e infiniband.bth.opcode -e infiniband.bth.se -e infiniband.bth.padcnt \
		-e infiniband.bth.tver -e infiniband.bth.p_key -e infiniband.bth.destqp -e infiniband.deth.q_key -e infiniband.deth.srcqp \
		-e infiniband.mad.attributeid -e udp.payload 2>/dev/null |
		awk -v name="$1" '
		# Bytes of the whole MAD; its data begin at 24.
		BEGIN {
			all = "8-15 "
			names["0x0010"] = all "24-27 40-47 56-58 68-70 80-114 166-199" # REQ
			names["0x0012"] = all "24-31" # REJ
			names["0x0013"] = all "24-31 36-38 44-46 50-50 52-59" # REP; 50: how long the device may take to ACK
			names["0x0014"] = all "24-31" # RTU
			names["0x0015"] = all "24-34" # DREQ
			names["0x0016"] = all "24-31" # DREP
			names["0x0017"] = all "24-27 42-75" # SIDR_REQ
			names["0x0018"] = all "24-27 32-34" # SIDR_REP
			# Where buffers are, and their keys.
			if (name ~ /rstream/) {
				names["0x0010"] = names["0x0010"] " 208-219 224-235"
				names["0x0013"] = names["0x0013"] " 68-79 84-95"
			}
		}
		{
			mad = substr($10, 2 * (12 + 8) + 1, 2 * 256)
			count = split(names[$9], ranges, " ")
			for (i = 1; i <= count; i++) {
				split(ranges[i], ends, "-")
				for (byte = ends[1]; byte <= ends[2]; byte++)
					mad = substr(mad, 1, 2 * byte) "**" substr(mad, 2 * byte + 3)
			}
			$10 = mad
			print
		}' | sort -u
}

failed=0
while read -r capture commands; do
	case $capture in
	*-v6) address=fd77::1 ;;
	*) address=10.77.0.1 ;;
	esac
	commands=${commands//HOST/$address}
	rm -rf "$work"
	mkdir "$work"
	# Device and path MTU are those of there. A datagram in the capture shows that all before it is there too.
	# shellcheck disable=SC2016 # what another shell expands
	"$uroce" lab 2 --profile=rxe --mtu=9000 --wait=1ms -- bash -c '
		tcpdump -i any --immediate-mode -U -s 0 -B 65536 -Z root -w "$1/pcap" udp port 4791 or udp port 9 2>"$1/err" & dump=$!
		until grep -qs listening "$1/err"; do kill -0 $dump || exit; sleep 0.05; done
		eval "$2" & server=$!
		while kill -0 $server 2>/dev/null && ! grep -q @uroce/cm/ /proc/net/unix; do sleep 0.05; done
		touch "$1/ready"
		wait $server; status=$?
		until [ -e "$1/end" ]; do sleep 0.05; done
		until grep -qa uroce-end "$1/pcap"; do echo uroce-end >/dev/udp/10.77.0.2/9; sleep 0.1; done
		kill $dump; wait $dump; exit $status' bash "$work" "${commands% :: *}" :: bash -c '
		until [ -e "$1/ready" ]; do sleep 0.05; done
		eval "$2"; status=$?; touch "$1/end"; exit $status' bash "$work" "${commands#* :: }" >"$work/out" 2>&1
	status=$?
	messages "$capture" "$pcaps/$capture.pcap" >"$work/rxe"
	messages "$capture" "$work/pcap" >"$work/ours"
	bad=$(tshark -n -r "$work/pcap" -Y '_ws.malformed || (udp.port == 4791 && !infiniband)' 2>/dev/null)
	if [ $status = 0 ] && [ -z "$bad" ] && diff "$work/rxe" "$work/ours" >"$work/diff"; then
		echo "ok      $capture: $(wc -l <"$work/ours") kinds of messages"
	else
		failed=$((failed + 1))
		echo "FAILED  $capture: status $status"
		cat "$work/diff" "$work/out"
		[ -z "$bad" ] || printf 'malformed, for tshark:\n%s\n' "$bad"
	fi
done <<'END'
cm-rping-v4 rping -s -a HOST -C 3 :: rping -c -a HOST -C 3
cm-rping-v6 rping -s -a HOST -C 3 :: rping -c -a HOST -C 3
cm-reject-v4 rping -s -a HOST -p 7999 & until [ -e "$1/end" ]; do sleep 0.05; done; kill $! :: ! rping -c -a HOST -C 1
cm-reject-v6 rping -s -a HOST -p 7999 & until [ -e "$1/end" ]; do sleep 0.05; done; kill $! :: ! rping -c -a HOST -C 1
cm-ucmatose-v4 ucmatose -b HOST -c 2 -C 2 -S 100 :: ucmatose -s HOST -c 2 -C 2 -S 100
cm-ucmatose-v6 ucmatose -b HOST -c 2 -C 2 -S 100 :: ucmatose -s HOST -c 2 -C 2 -S 100
cm-udaddy-v4 udaddy -b HOST -C 2 -S 100 :: udaddy -s HOST -C 2 -S 100
cm-udaddy-v6 udaddy -b HOST -C 2 -S 100 :: udaddy -s HOST -C 2 -S 100
cm-rdma-server-client rdma_server :: rdma_client -s HOST
cm-rstream-v4 rstream -b HOST -S 64 -I 5 -C 1 :: rstream -s HOST -S 64 -I 5 -C 1
END
exit $((failed > 0))
