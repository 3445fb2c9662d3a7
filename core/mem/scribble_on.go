//go:build sardebug

package mem

// Debug tells whether Scribble does anything: built with -tags sardebug.
const Debug = true

// Scribble overwrites memory that is about to be freed, or to be given back for
// reuse, so that a later use through a stale slice shows as garbage (a NaN
// pattern).
func Scribble(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}
