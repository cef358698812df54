# Prints the average amount of each shop, in the order the shops appear.
# Input: CSV with a header line; columns: shop, day, amount.
BEGIN { FS = "," }

NR == 1 { next }

!($1 in count) { order[++shops] = $1 }

{
	sum[$1] += $3
	count[$1] = NR - 1
}

END {
	for (i = 1; i <= shops; i++)
		printf "%s %.2f\n", order[i], sum[order[i]] / count[order[i]]
}
