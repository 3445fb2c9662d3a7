// Package must is for long runs of steps each of which may fail: the function that they belong to says once that it
// returns the error of the one that did. They are steps on that function's goroutine.
package must

// failure is what a step that failed panics with.
type failure struct{ error }

// Return makes the error of the step that failed that of the function that defers Return(&err).
func Return(err *error) {
	switch p := recover().(type) {
	case nil:
	case failure:
		*err = p.error
	default:
		panic(p)
	}
}

// Do ends the steps where err is not nil.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get is v, where err is nil, and ends the steps otherwise.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}
