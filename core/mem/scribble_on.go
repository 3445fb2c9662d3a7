//go:build sardebug

package mem

// scribble overwrites a buffer that is about to be freed, so that a use after
// free through a stale slice shows as garbage (a NaN pattern) before the unmap
// makes it a fault. Built with -tags sardebug.
func scribble(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}
