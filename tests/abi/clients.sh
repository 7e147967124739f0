#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: clients.sh LIBRARY PACKAGE
#
# Lets the loader resolve every symbol of every program and library of an installed PACKAGE that needs libibverbs or librdmacm, with
# LIBRARY, and what stands beside it, in their place. Complaints about other libraries are not ours. Skipped (77) where PACKAGE is not installed.

set -u
library=$1
package=$2
directory=$(dirname "$library")
checked=0
failed=0

files=$(dpkg -L "$package" 2>/dev/null) || { echo "skipped: $package is not installed"; exit 77; }

for file in $files; do
	[ -f "$file" ] && [ ! -L "$file" ] || continue
	objdump -p "$file" 2>/dev/null | grep -qE 'NEEDED *lib(ibverbs|rdmacm)\.so\.1$' || continue
	checked=$((checked + 1))
	# -r resolves functions too, as LD_BIND_NOW does
	said=$(LD_LIBRARY_PATH=$directory LD_BIND_NOW=1 ldd -r "$file" 2>&1)
	if ! echo "$said" | grep -q "libibverbs\.so\.1 => $directory/"; then
		echo "$file: does not load $library"
		failed=1
	fi
	complaints=$(echo "$said" | grep -E 'undefined symbol|not found' |
		grep -E 'IBVERBS_|RDMACM_|libibverbs|librdmacm|symbol: _?(ibv|rdma|verbs|mbps|mult|__verbs|execute_ioctl|__ioctl)')
	if [ -n "$complaints" ]; then
		echo "$complaints"
		failed=1
	fi
done

echo "$package: $checked files need libibverbs.so.1 or librdmacm.so.1"
[ $checked -gt 0 ] || { echo "skipped: nothing of it needs the libraries"; exit 77; }
exit $failed
