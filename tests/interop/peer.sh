#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The peer: a virtual machine with soft-RoCE, at the other end of a tap in a network namespace of its own.
#
#   peer.sh up IMAGE DIR FILE...     boots it from what image.sh made, with the files in its /tests
#   peer.sh here DIR COMMAND...      runs a command on this side: in the namespace
#   peer.sh there DIR SECONDS LINE   runs a line of shell in the peer, so long at most; ends with its status
#   peer.sh mtu DIR BYTES            sets the interfaces of both sides to an MTU
#   peer.sh down DIR
#
# What is up goes down by itself when the process that started it is gone, whatever ended that: a keeper in a session of
# its own waits for it, and namespaces end with the last process in them. DIR is the place of all its state. Needs no
# privileges where user namespaces may be made.
set -euo pipefail

here_v4=10.78.0.1 here_v6=fd78::1
there_v4=10.78.0.2 there_v6=fd78::2
port=7
most=9000 # bytes, of the interfaces
patience=600 # seconds, for the machine to boot in

skip() {
	echo "skipped: $*"
	# Those who need the peer say so too.
	echo "skipped: $*" >"$dir/skipped"
	exit 77
}

# enter DIR COMMAND...: becomes a command in the namespace.
enter() {
	local holder user=()
	holder=$(cat "$1/holder")
	[ "$(id -u)" = 0 ] || user=(--user --preserve-credentials)
	shift
	exec nsenter --target "$holder" --net "${user[@]}" -- "$@"
}

# In the namespace, as its process 1: becomes the machine.
boot() {
	local image=$1 dir=$2
	ip link set lo up
	ip tuntap add dev tap0 mode tap
	# Room for all that an unreliable connection may send at once.
	ip link set tap0 mtu $most txqueuelen 10000 up
	ip addr add $here_v4/24 dev tap0
	ip addr add $here_v6/64 dev tap0 nodad
	touch "$dir/namespace"
	# rxe needs what 256 MiB do not have.
	exec qemu-system-x86_64 -machine q35 -cpu max -accel tcg -smp 1 -m 512 -nodefaults -no-user-config -display none \
		-no-reboot -kernel "$image/vmlinuz" -initrd "$dir/initrd" -serial "file:$dir/console" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off peer.ipv4=$there_v4 peer.ipv6=$there_v6 peer.port=$port" \
		-netdev tap,id=net,ifname=tap0,script=no,downscript=no \
		-device virtio-net-pci,netdev=net,host_mtu=$most,romfile=
}

# Holds the namespace while another process lives.
keep() {
	local image=$1 dir=$2 owner=$3 user=()
	[ "$(id -u)" = 0 ] || user=(--map-root-user)
	unshare "${user[@]}" --net --pid --fork --kill-child -- "$0" boot "$image" "$dir" &
	local holder=$!
	# shellcheck disable=SC2064 # now
	trap "kill -KILL $holder 2>/dev/null || :" EXIT
	echo $holder >"$dir/holder"
	while kill -0 $holder 2>/dev/null && kill -0 "$owner" 2>/dev/null; do sleep 0.5; done
}

# Says a line to the agent. Its last line is the status.
talk() {
	local seconds=$1 line=$2 status=125 text
	exec 3<>/dev/tcp/$there_v4/$port || exit 125
	printf '%s\n%s\n' "$seconds" "$line" >&3
	while IFS= read -r -t $((seconds + 20)) text <&3; do
		case $text in
		$'\1'*) status=${text#?} ;;
		*) printf '%s\n' "$text" ;;
		esac
	done
	exit "$status"
}

answers() {
	(enter "$dir" "$0" talk 5 true) >/dev/null 2>&1
}

up() {
	local image=$1 file until
	dir=$2
	shift 2
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd)
	down "$dir"
	rm -rf "${dir:?}"/*
	[ -e "$image/initramfs.cpio" ] || skip "there is no image of the peer"
	command -v qemu-system-x86_64 >/dev/null || skip "no qemu-system-x86_64"
	[ -c /dev/net/tun ] || skip "no /dev/net/tun"

	mkdir "$dir/tests"
	for file; do cp "$file" "$dir/tests/"; done
	{
		cat "$image/initramfs.cpio"
		(cd "$dir" && find tests | "$image/busybox" cpio -o -H newc 2>/dev/null)
	} >"$dir/initrd"
	setsid "$0" keep "$image" "$dir" $PPID >"$dir/log" 2>&1 </dev/null &
	until=$((SECONDS + patience))
	while [ $SECONDS -lt $until ] && kill -0 $! 2>/dev/null; do
		if [ -e "$dir/namespace" ] && answers; then
			echo "up after $((SECONDS - until + patience)) s"
			rm "$dir/initrd"
			return
		fi
		sleep 0.2
	done
	[ -e "$dir/namespace" ] || skip "no namespace with a tap: $(tail -n 1 "$dir/log")"
	echo "the peer does not answer; its log and console:"
	tail -n 5 "$dir/log" "$dir/console"
	down "$dir"
	exit 1
}

down() {
	local holder tries=100
	holder=$(cat "$1/holder" 2>/dev/null) || return 0
	# Its number may be another's by now.
	if grep -qs "$1" "/proc/$holder/cmdline"; then
		kill -KILL "$holder"
		while [ $tries -gt 0 ] && kill -0 "$holder" 2>/dev/null; do
			sleep 0.05
			tries=$((tries - 1))
		done
	fi
	rm -f "$1/holder" "$1/namespace" "$1/initrd"
}

verb=$1
shift
case $verb in
up) up "$@" ;;
here) enter "$@" ;;
there) enter "$1" "$0" talk "$2" "$3" ;;
mtu)
	("$0" here "$1" ip link set tap0 mtu "$2")
	"$0" there "$1" 20 "/sbin/ip link set eth0 mtu $2"
	;;
down) down "$(cd "$1" && pwd)" ;;
boot) boot "$@" ;;
keep) keep "$@" ;;
talk) talk "$@" ;;
*) exit 2 ;;
esac
