#!/bin/bash
# SPDX-License-Identifier: MIT
#
# usage: image.sh DIR
#
# Prepares in DIR what the peer boots from: vmlinuz, and initramfs.cpio with soft-RoCE (rxe), libibverbs and the programs
# that use it, all from the distribution's packages. They are downloaded and unpacked, not installed. Does nothing where
# that has been done by this script as it is now.
set -euo pipefail

source=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
root=$dir/root

packages=(busybox-static iproute2 ibverbs-utils ibverbs-providers perftest rdmacm-utils librdmacm1 qperf iperf3)
modules=(virtio_pci virtio_net af_packet ipv6 crc32_generic crc32_pclmul rdma_rxe ib_uverbs rdma_ucm)
# What the packages depend on and nothing here needs.
needless='^(adduser|debconf|dpkg|init-system-helpers|libaudit|libdb5|libgdbm|libpam|libperl|libsemanage|linux-image|passwd|perl|tar|udev)'

skip() {
	echo "skipped: $*"
	exit 77
}

[ "$(uname -m)" = x86_64 ] || skip "the peer is an x86-64 machine"
stamp=$(cat "$0" "$source/init" "$source/agent" | sha256sum)
[ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ] || exit 0
for program in apt-get dpkg-deb depmod modprobe; do
	command -v "$program" >/dev/null || skip "no $program"
done

rm -rf "$root" "$dir/kernel"
mkdir -p "$dir/packages/partial" "$root" "$dir/kernel"

# Against an empty list of what is installed, so that all they depend on comes too.
: >"$dir/installed"
apt=(apt-get -q -y -o APT::Sandbox::User=root -o Dir::State::status="$dir/installed"
	-o Dir::Cache::archives="$dir/packages")
kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
[ -n "$kernel" ] || skip "apt knows no linux-image-amd64 (apt-get update?)"
"${apt[@]}" --no-install-recommends --download-only install "${packages[@]}" >"$dir/log" 2>&1 ||
	skip "$(tail -n 1 "$dir/log")"
cd "$dir/packages"
ls "${kernel}"_*.deb >/dev/null 2>&1 || apt-get -q -o APT::Sandbox::User=root download "$kernel" >>"$dir/log" 2>&1 ||
	skip "$(tail -n 1 "$dir/log")"

# The kernel, and the modules in the order in which they go in.
version=${kernel#linux-image-}
dpkg-deb -x "$(ls "${kernel}"_*.deb | tail -n 1)" "$dir/kernel"
depmod -b "$dir/kernel" "$version"
mkdir "$root/modules"
for module in "${modules[@]}"; do
	modprobe -d "$dir/kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
	cp "$file" "$root/modules/"
	echo "${file##*/}" >>"$root/modules/order"
done

for package in *.deb; do
	[[ $package =~ $needless ]] || dpkg-deb -x "$package" "$root"
done
rm -rf "$root"/usr/share/{doc,man,locale,perl5,bash-completion} "$root"/{usr/,}lib/udev
install -m 755 "$source/init" "$source/agent" "$root/"
mkdir -p "$root"/{proc,sys,dev,run,tmp,etc,bb,tests}
echo root:x:0:0:root:/:/bb/sh >"$root/etc/passwd"
echo root:x:0: >"$root/etc/group"

cp "$dir/kernel/boot/vmlinuz-$version" "$dir/vmlinuz"
(cd "$root" && find . | bin/busybox cpio -o -H newc >"$dir/initramfs.cpio" 2>/dev/null)
cp "$root/bin/busybox" "$dir/busybox"
rm -rf "$root" "$dir/kernel"
echo "$stamp" >"$dir/stamp"
echo "$kernel; initramfs of $(du -m "$dir/initramfs.cpio" | cut -f 1) MiB"
