package file

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

func fileSystem(dir string) (fileSystemKind, error) {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return fileSystemKind{}, err
	}
	switch windows.GetDriveType(root) {
	case windows.DRIVE_REMOTE:
		return fileSystemKind{name: "a network drive", remote: true}, nil
	case windows.DRIVE_RAMDISK:
		return fileSystemKind{name: "a RAM disk", volatile: true}, nil
	}
	return fileSystemKind{}, nil
}
