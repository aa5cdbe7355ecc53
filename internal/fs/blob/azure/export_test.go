package azure

// SetCopyBytes changes how many bytes the service is asked to copy at once.
func (s *Store) SetCopyBytes(n int64) { s.copyBytes = n }
