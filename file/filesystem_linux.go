package file

import "golang.org/x/sys/unix"

// kinds are the file systems that are not simply on a local disk, by their magic
// number in statfs. FUSE is among the remote ones, since it does not tell what
// is behind it.
var kinds = map[uint32]fileSystemKind{
	unix.NFS_SUPER_MAGIC:   {name: "NFS", remote: true},
	unix.SMB_SUPER_MAGIC:   {name: "SMB", remote: true},
	unix.CIFS_SUPER_MAGIC:  {name: "CIFS", remote: true},
	unix.SMB2_SUPER_MAGIC:  {name: "SMB 2", remote: true},
	unix.V9FS_MAGIC:        {name: "9P", remote: true},
	unix.AFS_SUPER_MAGIC:   {name: "AFS", remote: true},
	unix.AFS_FS_MAGIC:      {name: "AFS", remote: true},
	unix.CODA_SUPER_MAGIC:  {name: "Coda", remote: true},
	unix.CEPH_SUPER_MAGIC:  {name: "Ceph", remote: true},
	unix.NCP_SUPER_MAGIC:   {name: "NCP", remote: true},
	unix.OCFS2_SUPER_MAGIC: {name: "OCFS2", remote: true},
	unix.FUSE_SUPER_MAGIC:  {name: "FUSE, which may be one", remote: true},
	0x01161970:             {name: "GFS2", remote: true},
	0x0bd00bd0:             {name: "Lustre", remote: true},
	0x47504653:             {name: "GPFS", remote: true},
	0xbacbacbc:             {name: "a folder shared by VMware", remote: true},
	0x786f4256:             {name: "a folder shared by VirtualBox", remote: true},
	unix.TMPFS_MAGIC:       {name: "tmpfs", volatile: true},
	unix.RAMFS_MAGIC:       {name: "ramfs", volatile: true},
}

func fileSystem(dir string) (fileSystemKind, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fileSystemKind{}, err
	}
	return kinds[uint32(s.Type)], nil
}
