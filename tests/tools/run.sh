#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

exit_status_is_the_programs() {
	for code in 0 1 7 125 126 127 255; do
		status $code "$uroce" run -- sh -c "exit $code"
	done
}

signal_is_the_programs() {
	status 143 "$uroce" run -- sh -c 'kill -TERM $$'
	status 137 "$uroce" run -- sh -c 'kill -KILL $$'

	"$uroce" run -- sleep 60 &
	child=$!
	until [ "$(cat /proc/$child/comm)" = sleep ]; do :; done
	kill -TERM $child
	found=0
	wait $child || found=$?
	same "status after SIGTERM from outside" 143 $found
}

becomes_the_program() {
	"$uroce" run -- sh -c 'echo $$' >out &
	child=$!
	wait $child
	same "process id" $child "$(cat out)"
}

arguments_arrive_unchanged() {
	status 0 "$uroce" run sh -c 'printf "%s\n" "$@"' name --help -- '' 'a b' '*'
	printf '%s\n' --help -- '' 'a b' '*' | cmp - out
	status 0 "$uroce" run -- env -- printf %s --timing=x
	same output --timing=x "$(cat out)"
}

children_inherit_the_library() {
	status 0 "$uroce" run -- sh -c "$HERE/client"
	same library "$library" "$(cat out)"
	status 0 "$uroce" run -- env "$HERE/client"
	same library "$library" "$(cat out)"
}

runpath_to_another_library_is_served() {
	same "library without uroce" "$HERE/other/libibverbs.so.1" "$("$HERE/client_runpath")"
	status 0 "$uroce" run -- "$HERE/client_runpath"
	same library "$library" "$(cat out)"
}

rpath_to_another_library_is_served() {
	same "library by the path alone" "$HERE/other/libibverbs.so.1" \
		"$(LD_LIBRARY_PATH=$BUILD/lib "$HERE/client_rpath")"
	status 0 "$uroce" run -- "$HERE/client_rpath"
	same library "$library" "$(cat out)"
}

rpath_to_another_librdmacm_is_served() {
	same "libraries by the path alone" "$library $HERE/other/rdmacm/librdmacm.so.1" \
		"$(LD_LIBRARY_PATH=$BUILD/lib "$HERE/client_rdmacm_rpath" | xargs)"
	status 0 "$uroce" run -- "$HERE/client_rdmacm_rpath"
	same libraries "$library ${library%/*}/librdmacm.so.1" "$(xargs <out)"
}

needed_by_path_is_served() {
	status 0 "$uroce" run -- "$HERE/client_by_path"
	same library "$library" "$(cat out)"
}

rpath_behind_a_wrapper_is_served() {
	status 0 "$uroce" run -- timeout 60 "$HERE/client_rpath"
	same library "$library" "$(cat out)"
	PATH=$HERE:$PATH
	status 0 "$uroce" run -- env A=1 client_rpath
	same library "$library" "$(cat out)"
}

rpath_of_a_scripts_interpreter_is_served() {
	printf '#! %s\n' "$HERE/client_rpath" >script
	chmod +x script
	status 0 "$uroce" run -- ./script
	same library "$library" "$(cat out)"
}

preloads_only_where_needed() {
	status 0 "$uroce" run -- sh -c 'echo "${LD_PRELOAD-none}"'
	same LD_PRELOAD none "$(cat out)"
	LD_PRELOAD=$library status 0 "$uroce" run -- sh -c "$HERE/client_rpath"
	same library "$library" "$(cat out)"
}

preload_from_a_directory_with_a_blank_is_refused() {
	install_in "$work/a b"
	status 0 "a b/bin/uroce" run -- "$HERE/client"
	same library "$work/a b/lib/uroce/libibverbs.so.1" "$(cat out)"
	refused 125 blank "a b/bin/uroce" run -- "$HERE/client_rpath"
}

static_program_is_refused() {
	"$HERE/static_program"
	refused 126 'statically linked' "$uroce" run -- "$HERE/static_program"
	printf '#!%s\n' "$HERE/static_program" >script
	chmod +x script
	refused 126 'statically linked' "$uroce" run -- ./script
	# Not as a mere argument.
	status 0 "$uroce" run -- test -x "$HERE/static_program"
}

# Runs the rest as somebody else than root, and than the owner of what root made. Nothing of his stays in /dev/shm.
as_somebody() {
	if [ "$(id -u)" = 0 ]; then
		UROCE_RUNTIME_DIR=$work/none setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		"$@"
	fi
}

setuid_program_is_refused_to_others() {
	install_in "$work"
	elevated=$(command -v su)
	if [ "$(id -u)" = 0 ]; then
		cp /bin/true elevated && chmod 4755 elevated
		elevated=./elevated
		cp /bin/true group && chmod 2755 group
		refused 126 'gains privileges' as_somebody bin/uroce run -- ./group
	fi
	[ -u "$elevated" ] || skip "no setuid program here"
	refused 126 'gains privileges' as_somebody bin/uroce run -- "$elevated"
	if command -v setpriv >/dev/null; then
		# What may gain nothing is served.
		status 0 as_somebody setpriv --no-new-privs bin/uroce run -- "$elevated" --version
	fi
}

file_capabilities_are_refused_to_others() {
	[ "$(id -u)" = 0 ] || skip "needs root to give a file capabilities"
	install_in "$work"
	cp /bin/true capable
	setcap cap_net_raw+ep capable || skip "no file capabilities here"
	refused 126 'gains privileges' as_somebody bin/uroce run -- ./capable
	status 0 bin/uroce run -- ./capable
}

setuid_program_of_the_caller_runs() {
	cp /bin/true mine
	chmod 4755 mine
	status 0 "$uroce" run -- ./mine
}

# elf CLASS DATA MACHINE: the start of a program of another architecture, each as octal bytes.
elf() {
	printf '\177ELF%b%b\001\000\000\000\000\000\000\000\000\000%b%b' "$1" "$2" "$4" "$3"
	head -c 64 /dev/zero
}

other_architecture_is_refused() {
	little='\001' big='\002'
	elf '\001' $little '\003\000' '\002\000' >x86
	elf '\002' $little '\363\000' '\003\000' >riscv
	elf '\002' $big '\000\026' '\000\002' >s390
	chmod +x x86 riscv s390
	refused 126 'another architecture (x86, 32 bits)' "$uroce" run -- ./x86
	refused 126 'another architecture (risc-v, 64 bits)' "$uroce" run -- ./riscv
	refused 126 'another architecture (s390, 64 bits)' "$uroce" run -- ./s390
}

missing_version_is_refused() {
	refused 126 'needs version IBVERBS_9.9 of libibverbs.so.1' "$uroce" run -- \
		"$HERE/client_newer"
}

missing_program_is_127() {
	refused 127 'not found' "$uroce" run -- no-such-program
	refused 127 'not found' "$uroce" run -- ./no-such-program
	refused 127 'not found' "$uroce" run -- ''
}

what_cannot_be_executed_is_126() {
	: >file
	mkdir dir
	refused 126 'Permission denied' "$uroce" run -- ./file
	refused 126 'Permission denied' "$uroce" run -- ./dir
	printf '#!/no/such/interpreter\n' >script
	chmod +x script
	refused 126 'its interpreter /no/such/interpreter: No such file' "$uroce" run -- ./script
}

script_without_interpreter_line_runs() {
	echo 'exit 5' >script
	chmod +x script
	status 5 "$uroce" run -- ./script
}

settings_reach_the_program() {
	status 0 "$uroce" run --timing=random:18446744073709551615 --devices=a,b:lo -p rxe --memory=cma -- \
		sh -c 'echo $UROCE_TIMING $UROCE_DEVICES $UROCE_PROFILE $UROCE_MEMORY'
	same settings 'random:18446744073709551615 a,b:lo rxe cma' "$(cat out)"
}

wrong_settings_are_refused() {
	wrong_settings 125 run -- ibv_devices
}

absent_interface_is_said_and_the_program_runs() {
	status 3 "$uroce" run --devices=a:lo,b:lo+nope,c:nada -- sh -c 'exit 3'
	same "lines on stderr" 1 "$(wc -l <err)"
	grep -q "no interface 'nope' (of device 'b'), 'nada' (of device 'c'); the interfaces are .*lo" err ||
		fail "$(cat err)"
	status 0 "$uroce" run --devices=a:nope -- ibv_devinfo
	grep -q PORT_DOWN out || fail "$(cat out)"
	status 0 "$uroce" run --devices=a:lo,b -- true
	[ ! -s err ] || fail "$(cat err)"
}

wrong_timing_is_refused() {
	for timing in '' early random random: random:x random:1x random:18446744073709551616; do
		status 125 "$uroce" run --timing="$timing" -- true
		grep -q UROCE_TIMING err || fail "--timing='$timing': $(cat err)"
	done
	export UROCE_TIMING=early
	refused 125 UROCE_TIMING "$uroce" run -- true
	unset UROCE_TIMING
}

wrong_options_are_refused() {
	status 125 "$uroce" run
	status 125 "$uroce" run --no-such-option -- true
}

missing_library_is_said() {
	install_in "$work"
	rm lib/uroce/libibverbs.so.1
	refused 125 'libibverbs.so.1: No such file' bin/uroce run -- true
	cp "$library" lib/uroce/
	rm lib/uroce/librdmacm.so.1
	refused 125 'librdmacm.so.1: No such file' bin/uroce run -- true
	rm -r lib/uroce
	refused 125 'libraries are not in' bin/uroce run -- true
}

installed_command_finds_its_library() {
	cmake --install "$BUILD" --prefix "$work/usr" >/dev/null
	status 0 usr/bin/uroce run -- "$HERE/client"
	same library "$work/usr/lib/uroce/libibverbs.so.1" "$(cat out)"
	ln -s usr/bin/uroce link
	status 0 ./link run -- "$HERE/client"
	same library "$work/usr/lib/uroce/libibverbs.so.1" "$(cat out)"
	[ -f usr/share/man/man1/uroce-run.1 ] || fail "no man page is installed"
}

run_case "$@"
