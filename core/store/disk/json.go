package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

const MaxName = 4096

// MaxCount bounds numbers of nodes and edges, so that sums of them do not overflow.
const MaxCount = 1 << 48

// Object is a JSON object whose keys keep their order, each there once.
type Object[T any] []Member[T]

type Member[T any] struct {
	Name  string
	Value T
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object[T]) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.Join(fmt.Errorf("%v in place of an object", open), err)
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name := key.(string) // the keys of an object are strings, or the decoder complains
		if seen[name] {
			return fmt.Errorf("the key %q twice", name)
		}
		seen[name] = true
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		*o = append(*o, Member[T]{name, v})
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (o Object[T]) MarshalJSON() ([]byte, error) {
	b := []byte("{")
	for i, e := range o {
		if i > 0 {
			b = append(b, ',')
		}
		key, err := json.Marshal(e.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(e.Value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, key...), ':'), value...)
	}
	return append(b, '}'), nil
}

// Set adds or replaces a key.
func (o *Object[T]) Set(name string, value T) {
	for i := range *o {
		if (*o)[i].Name == name {
			(*o)[i].Value = value
			return
		}
	}
	*o = append(*o, Member[T]{name, value})
}

// Decode decodes what a file says. At off, which is -1 where nobody knows, is what want says.
func Decode(name string, off int64, data []byte, into any, want string) error {
	if err := json.Unmarshal(data, into); err != nil {
		return jsonError(name, off, want, err)
	}
	return nil
}

func jsonError(name string, off int64, want string, err error) error {
	var syn *json.SyntaxError
	var typ *json.UnmarshalTypeError
	got := err.Error()
	switch {
	case errors.As(err, &syn):
		if off >= 0 {
			off += syn.Offset
		}
	case errors.As(err, &typ):
		got = "a " + typ.Value
		if off >= 0 {
			off += typ.Offset
		}
	}
	return &FormatError{File: name, Offset: off, Want: want, Got: got}
}
