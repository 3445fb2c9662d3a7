package kernel

import (
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const checksumBytes = 256 << 10 // of a block: one CRC

// Checksum is the FNV-1a hash of the CRC-32Cs of data's blocks: the same for every
// number of threads. A changed run of at most 32 bits always changes it.
func Checksum(p *Pool, data []byte) uint64 {
	sums := make([]byte, 4*((len(data)+checksumBytes-1)/checksumBytes))
	p.Run(len(sums)/4, func(t int) {
		begin := t * checksumBytes
		block := data[begin:min(begin+checksumBytes, len(data))]
		binary.LittleEndian.PutUint32(sums[4*t:], crc32.Checksum(block, castagnoli))
	})
	h := fnv.New64a()
	_, _ = h.Write(sums)
	return h.Sum64()
}
