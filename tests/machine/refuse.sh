#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Whether machine_refuse refuses every system call that the library makes: strace says which these are.
# usage: refuse.sh MACHINE_REFUSE
set -u

command -v strace >/dev/null || { echo "skipped: strace is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for case in nothing_refused copying_refused; do
	strace -f -o "$dir/$case" "$1" $case || { echo "skipped: strace cannot run it"; exit 77; }
done

# Not tried: what the loader and the C library need in any program or end it for, and what only the test calls.
cat >"$dir/known" <<-END
	access arch_prctl execve exit exit_group futex rseq rt_sigaction rt_sigreturn set_tid_address
	clock_gettime restart_syscall pidfd_open poll ppoll recvfrom seccomp socketpair wait4 waitid kill unshare dup
END
"$1" names >>"$dir/known"
tr ' \t' '\n\n' <"$dir/known" | sort -u >"$dir/tried"
sed -n 's/^[0-9]* *\([a-z_0-9]*\)(.*/\1/p; s/^[0-9]* *<\.\.\. \([a-z_0-9]*\) resumed.*/\1/p' \
	"$dir"/*_refused | sort -u >"$dir/made"
missing=$(comm -23 "$dir/made" "$dir/tried")
[ -z "$missing" ] && exit 0
echo "the library makes these calls, and no test refuses them:" $missing
exit 1
