# SPDX-License-Identifier: MIT
#
# Each line @NAME@ of page.html is replaced by the file of that name.

file(READ ${CMAKE_CURRENT_LIST_DIR}/page.html page)
string(REGEX MATCHALL "@[a-z]+\\.(css|js)@" names "${page}")
foreach(name IN LISTS names)
	string(REPLACE "@" "" file ${name})
	file(READ ${CMAKE_CURRENT_LIST_DIR}/${file} part)
	string(REPLACE "${name}\n" "${part}" page "${page}")
endforeach()
file(WRITE ${OUTPUT} "${page}")
