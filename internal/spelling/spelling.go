// Package spelling says how far words are apart, for suggestions.
package spelling

// Distance counts the characters to insert, delete, replace or exchange with their neighbor.
func Distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			if i == 0 || j == 0 {
				rows[i][j] = i + j
				continue
			}
			d := min(rows[i-1][j], rows[i][j-1]) + 1
			if a[i-1] == b[j-1] {
				d = min(d, rows[i-1][j-1])
			} else if d = min(d, rows[i-1][j-1]+1); i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
