/* SPDX-License-Identifier: MIT */
#include "tools/libraries.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tools.h"

/* The path of a library that has to be there. */
static bool find_library(const char *dir, const char *file, char path[PATH_MAX], const char *name)
{
	if (snprintf(path, PATH_MAX, "%s/%s", dir, file) >= PATH_MAX) {
		complain(name, "%s: %s", dir, strerror(ENAMETOOLONG));
		return false;
	}
	if (!access(path, R_OK))
		return true;
	complain(name, "%s: %s; build or install uroce again", path, strerror(errno));
	return false;
}

bool libraries_find(struct libraries *libs, const char *name)
{
	char path[PATH_MAX + 64];
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
	char *slash;

	if (length < 0 || length == PATH_MAX) {
		complain(name, "cannot tell where this command is: /proc/self/exe: %s",
			 length < 0 ? strerror(errno) : strerror(ENAMETOOLONG));
		return false;
	}
	path[length] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return false;
	strcpy(slash, "/../lib/uroce");
	if (!realpath(path, libs->dir)) {
		complain(name, "the libraries are not in %s: %s; build or install uroce again",
			 path, strerror(errno));
		return false;
	}
	if (!find_library(libs->dir, "libibverbs.so.1", libs->verbs, name) ||
	    !find_library(libs->dir, "librdmacm.so.1", libs->rdmacm, name))
		return false;
	if (strpbrk(libs->dir, ":;$")) {
		complain(name,
			 "the loader takes no directory with ':', ';' or '$' in its name, and the "
			 "libraries are in %s; install uroce elsewhere",
			 libs->dir);
		return false;
	}
	return true;
}

char *path_list_with(const char *list, const char *path)
{
	size_t length = strlen(path);
	char *result = malloc(length + (list ? strlen(list) : 0) + 2);
	char *end;

	if (!result)
		return NULL;
	end = stpcpy(result, path);
	/* To the loader an empty variable is one that is not set, not the working directory. */
	if (!list || !*list)
		return result;

	for (const char *element = list;; element++) {
		size_t size = strcspn(element, ":");

		if (size != length || strncmp(element, path, length)) {
			*end++ = ':';
			end = mempcpy(end, element, size);
		}
		element += size;
		if (!*element)
			break;
	}
	*end = '\0';
	return result;
}

char *path_list_with_preload(const char *list, const struct libraries *libs, enum preload preload)
{
	char *with_rdmacm, *result;

	if (preload == PRELOAD_NOTHING)
		return strdup(list ? list : "");
	if (preload == PRELOAD_VERBS)
		return path_list_with(list, libs->verbs);
	with_rdmacm = path_list_with(list, libs->rdmacm);
	result = with_rdmacm ? path_list_with(with_rdmacm, libs->verbs) : NULL;
	free(with_rdmacm);
	return result;
}
