package sar

import (
	"fmt"
	"strings"

	"sar/core/store/disk"
	"sar/core/store/npy"
)

// newNpy makes an array of a part, of zeros.
func (s *writer) newNpy(p int, name string, d disk.DType, shape ...int64) (npy.Output, error) {
	return npy.Create(s.partDir(p), name, d, shape)
}

// newArray makes an array of a relation.
func (s *writer) newArray(p, relation int, name string, d disk.DType, n int64) (npy.Output, error) {
	r := s.rels[relation]
	a, err := s.newNpy(p, r.dir+"/"+name+".npy", d, n)
	r.arrays[p][name] = a
	s.relation(p, relation).Arrays.Set(name, a.Described)
	return a, err
}

// fileName makes a file's name out of a name that users gave, one that is not in used.
func fileName(name string, n int, used map[string]bool) string {
	safe := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, name)
	if len(safe) > 100 || used[strings.ToLower(safe)] {
		safe = fmt.Sprintf("%.100s-%d", safe, n)
	}
	used[strings.ToLower(safe)] = true
	return safe
}
