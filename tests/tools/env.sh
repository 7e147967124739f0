#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

shell_sees_the_library() {
	eval "$("$uroce" env)"
	same library "$library" "$("$HERE/client")"
}

twice_is_as_once() {
	eval "$("$uroce" env)"
	once=$LD_LIBRARY_PATH
	eval "$("$uroce" env)"
	same LD_LIBRARY_PATH "$once" "$LD_LIBRARY_PATH"
}

other_directories_stay() {
	LD_LIBRARY_PATH=/one::$(dirname "$library"):/two:
	export LD_LIBRARY_PATH
	eval "$("$uroce" env)"
	same LD_LIBRARY_PATH "$(dirname "$library"):/one::/two:" "$LD_LIBRARY_PATH"
	LD_LIBRARY_PATH=
	eval "$("$uroce" env)"
	same LD_LIBRARY_PATH "$(dirname "$library")" "$LD_LIBRARY_PATH"
}

odd_directory_names_are_quoted() {
	odd="$work/it's \"odd\" \\ \`here\` & there"
	install_in "$odd"
	eval "$("$odd/bin/uroce" env)"
	same LD_LIBRARY_PATH "$odd/lib/uroce" "$LD_LIBRARY_PATH"
	same library "$odd/lib/uroce/libibverbs.so.1" "$("$HERE/client")"

	for bad in 'a:b' 'a;b' 'a$b'; do
		install_in "$work/$bad"
		refused 1 'install uroce elsewhere' "$work/$bad/bin/uroce" env
	done
}

settings_are_exported() {
	UROCE_DEVICES="a:it's"
	export UROCE_DEVICES
	"$uroce" env --timing=late >settings
	unset UROCE_DEVICES
	. ./settings
	same settings "late a:it's" "$(sh -c 'echo $UROCE_TIMING $UROCE_DEVICES')"
}

wrong_settings_are_refused() {
	wrong_settings 1 env
	wrong_settings 1 env --dockerfile
	refused 1 "no profile 'foo'" "$uroce" env --profile=foo
	refused 1 "'a/b' is no device's name" "$uroce" env --devices=a/b
}

library_logs_which_setting_is_wrong() {
	eval "$("$uroce" env)"
	export VERBS_LOG_LEVEL=1
	UROCE_DEVICES=b,a,a ibv_devices >out 2>&1 || :
	grep -q "UROCE_DEVICES: device 'a' is named twice" out || fail "$(cat out)"
	UROCE_PROFILE=none ibv_devices >out 2>&1 || :
	grep -q "UROCE_PROFILE: there is no profile 'none'" out || fail "$(cat out)"
	UROCE_TIMING=early ibv_devices >out 2>&1 || :
	grep -q "UROCE_TIMING: 'early' is not understood" out || fail "$(cat out)"
}

absent_interface_is_said_unless_it_is_an_images() {
	status 0 "$uroce" env --devices=a:nope
	same "lines on stderr" 1 "$(wc -l <err)"
	grep -q "no interface 'nope' (of device 'a')" err || fail "$(cat err)"
	grep -q "^export UROCE_DEVICES='a:nope'" out || fail "$(cat out)"
	status 0 "$uroce" env --dockerfile --devices=a:nope
	[ ! -s err ] || fail "$(cat err)"
}

dockerfile_lines_keep_the_images_path() {
	LD_LIBRARY_PATH=/host UROCE_DEVICES='a:b"c$d' "$uroce" env --dockerfile >out
	cat >expected <<-END
		ENV LD_LIBRARY_PATH="$(dirname "$library")\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
		ENV UROCE_DEVICES="a:b\\"c\\\$d"
	END
	diff expected out
}

run_case "$@"
