package kernel

import (
	"math/rand/v2"
	"testing"
)

func TestChecksum(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	for _, n := range []int{0, 1, 100, checksumBytes, checksumBytes + 1, 5*checksumBytes + 77} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		sum := Checksum(NewPool(1), data)
		if again := Checksum(NewPool(3), data); again != sum {
			t.Errorf("%d bytes: %x with one thread, %x with three", n, sum, again)
		}
		for range min(n, 50) {
			at, bit := rng.IntN(n), byte(1)<<rng.IntN(8)
			data[at] ^= bit
			if Checksum(NewPool(2), data) == sum {
				t.Errorf("%d bytes: byte %d changed by %#x, checksum did not", n, at, bit)
			}
			data[at] ^= bit
		}
		if n > 2*checksumBytes { // blocks that change places
			for i := range checksumBytes {
				data[i], data[checksumBytes+i] = data[checksumBytes+i], data[i]
			}
			if Checksum(NewPool(2), data) == sum {
				t.Error("two blocks changed places, the checksum did not change")
			}
		}
	}
}

func BenchmarkChecksum(b *testing.B) {
	data := make([]byte, 60_000*256*4)
	for b.Loop() {
		Checksum(NewPool(2), data)
	}
	b.SetBytes(int64(len(data)))
}
