# SPDX-License-Identifier: MIT
#
# For the reports: reads measurements, "NAME VALUE" a line, each name several times. Prints medians, and from them ratios; what
# was not measured is left out.

function median(name, sorted, i, j, t, n) {
	n = count[name]
	for (i = 1; i <= n; i++)
		sorted[i] = value[name, i]
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && sorted[j] < sorted[j - 1]; j--) {
			t = sorted[j]
			sorted[j] = sorted[j - 1]
			sorted[j - 1] = t
		}
	least[name] = sorted[1]
	most[name] = sorted[n]
	return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
}
function figure(name, unit, text) {
	if (!(name in count))
		return
	m[name] = median(name)
	printf "%-44s %10.3f  %10.3f  %10.3f  %s\n", text, m[name], least[name], most[name], unit
}
function ratio(name, over, text, remark) {
	if (!(name in m) || !(over in m) || !m[over])
		return
	printf "%-60s %8.3f%s\n", text, m[name] / m[over], remark
}
{ value[$1, ++count[$1]] = $2 }
