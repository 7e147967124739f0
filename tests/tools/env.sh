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
	UROCE_PROFILE="it's"
	export UROCE_PROFILE
	"$uroce" env --timing=late >settings
	unset UROCE_PROFILE
	. ./settings
	same settings "late it's" "$(sh -c 'echo $UROCE_TIMING $UROCE_PROFILE')"
}

dockerfile_lines_keep_the_images_path() {
	LD_LIBRARY_PATH=/host UROCE_DEVICES='a"b$c' "$uroce" env --dockerfile >out
	cat >expected <<-END
		ENV LD_LIBRARY_PATH="$(dirname "$library")\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
		ENV UROCE_DEVICES="a\\"b\\\$c"
	END
	diff expected out
}

run_case "$@"
