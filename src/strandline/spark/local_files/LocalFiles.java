package org.apache.hadoop.fs.local;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, with the same files, names, permissions and checksums, but without a process for each.
 *
 * Where Hadoop's native library is missing, and it is missing from PySpark, Hadoop starts `chmod` for each file and
 * directory that it makes and `readlink` several times for each that it renames. Java itself can do both.
 */
public final class LocalFiles {
    private LocalFiles() {}

    /** The files as they are. */
    public static class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            // All twelve bits, of what a link points at: as chmod does.
            Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
        }

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
            return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
        }
    }

    /** For `fs.file.impl`: with checksums beside the files. */
    public static class Checked extends LocalFileSystem {
        public Checked() {
            super(new Raw());
        }
    }

    /** The same as Raw for Hadoop's other interface, which Spark keeps checkpoints with. */
    public static class RawContext extends DelegateToFileSystem {
        RawContext(Configuration settings) throws IOException, URISyntaxException {
            super(FsConstants.LOCAL_FS_URI, new Raw(), settings, FsConstants.LOCAL_FS_URI.getScheme(), false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public FsServerDefaults getServerDefaults() throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public boolean isValidName(String name) {
            return true;
        }
    }

    /** For `fs.AbstractFileSystem.file.impl`. */
    public static class CheckedContext extends ChecksumFs {
        CheckedContext(URI uri, Configuration settings) throws IOException, URISyntaxException {
            super(new RawContext(settings));
        }
    }
}
