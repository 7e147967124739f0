/* SPDX-License-Identifier: MIT */
#include "tools/trace_html.h"

#include <assert.h>
#include <string.h>

/* The page as it was when this was built; the string ends behind it. */
__asm__(".pushsection .rodata\n"
	"page:\n"
	".incbin \"" TRACE_PAGE "\"\n"
	".byte 0\n"
	".popsection\n");
extern const char page[] __attribute__((visibility("hidden")));

void trace_html(FILE *out, const struct trace_told *told)
{
	static const char place[] = "/*UROCE_TRACE_MODEL*/null";
	const char *model = strstr(page, place);

	assert(model);
	fwrite(page, 1, (size_t)(model - page), out);
	trace_json_model(out, told);
	fputs(model + sizeof(place) - 1, out);
}
