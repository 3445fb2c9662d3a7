package npy

import (
	"fmt"
	"path/filepath"

	"sar/core/store/disk"
)

// Described is a file of the directory. What an .npy file says of itself has to agree.
type Described struct {
	File  string  `json:"file"`
	DType string  `json:"dtype,omitempty"`
	Shape []int64 `json:"shape,omitempty"`
}

// Agrees holds what the description in jsonPath says of an array against the array.
func (j Described) Agrees(jsonPath string, a *disk.Array) error {
	if j.DType != "" && j.DType != a.DType.String() || j.Shape != nil && fmt.Sprint(j.Shape) != fmt.Sprint(a.Shape) {
		return a.File.Bad(-1, fmt.Sprintf("%s, %s of shape %v as %s has it", a.Name, j.DType, j.Shape, filepath.Base(jsonPath)), "%s of shape %v", a.DType, a.Shape)
	}
	return nil
}
