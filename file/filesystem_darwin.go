package file

import "golang.org/x/sys/unix"

func fileSystem(dir string) (fileSystemKind, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fileSystemKind{}, err
	}
	return fileSystemKind{
		name:   unix.ByteSliceToString(s.Fstypename[:]),
		remote: s.Flags&unix.MNT_LOCAL == 0,
	}, nil
}
