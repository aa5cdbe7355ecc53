package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"tine.dev/tine/internal/control/buildinfo"
	"tine.dev/tine/internal/control/config"
	"tine.dev/tine/internal/control/doctor"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/server"
	"tine.dev/tine/internal/tine"
)

func (c *cli) serveCommand() *cobra.Command {
	var file string
	values := map[string]*string{}
	lists := map[string]*[]string{}
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server",
		Long: "Run the server of one data directory until it is told to stop.\n\n" +
			"Every setting below can also be given in the environment (TINE_DATA, TINE_CACHE_BYTES, ...) or\n" +
			"in a TOML file (data = \"/srv/tine\", cache_bytes = \"1GiB\", ...); a flag wins over the\n" +
			"environment, and that over the file.\n\n" +
			"SIGTERM, SIGINT and SIGHUP stop it: no new calls, everything written is made durable, all mounts are\n" +
			"taken away. They come back at the next start; `tine umount` takes one away for good. A second\n" +
			"signal ends the process at once, as a crash would. Ready, it logs a line, tells systemd\n" +
			"(Type=notify), and answers /readyz on its socket; /healthz answers from the start.",
		Example: "  tine serve\n  tine serve --data /srv/tine --socket /run/tine/tine.sock --cache-bytes 1GiB\n  tine serve --config /etc/tine.toml\n" +
			"  tine serve --store eu='s3://bucket/tine?region=eu-central-1'",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := map[string]string{}
			for name, v := range values {
				if cmd.Flags().Changed(name) {
					flags[name] = *v
				}
			}
			for name, v := range lists {
				if cmd.Flags().Changed(name) {
					flags[name] = strings.Join(*v, " ")
				}
			}
			if cmd.Flags().Changed("socket") {
				flags["socket"] = c.socket
			}
			cfg, err := config.Load(file, flags, c.env.getenv, c.env.uid)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context(), server.Options{Config: cfg, Log: c.logger(cfg),
				NotifySocket: c.env.getenv("NOTIFY_SOCKET"), Guard: c.env.guard, OpenStore: openStore})
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "TOML file with settings (TINE_CONFIG)")
	for _, s := range config.Settings() {
		if s.Name == "socket" {
			continue // every command has it
		}
		if s.Many {
			lists[s.Name] = cmd.Flags().StringArray(s.Name, nil, s.Help)
			continue
		}
		values[s.Name] = cmd.Flags().String(s.Name, "", s.Help)
		cmd.Flags().Lookup(s.Name).Hidden = s.Hidden
	}
	cmd.Flags().Lookup("data").DefValue = config.DefaultData(c.env.getenv, c.env.uid) // for the help; config.Load knows it too
	must(cmd.MarkFlagDirname("data"))
	must(cmd.MarkFlagFilename("config", "toml"))
	return cmd
}

// logger writes to standard error as the configuration says.
func (c *cli) logger(cfg config.Config) *slog.Logger {
	level := slog.LevelInfo
	switch cfg.LogLevel {
	case "debug":
		level = slog.LevelDebug
	case "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.env.stderr, o))
	}
	return slog.New(slog.NewTextHandler(c.env.stderr, o))
}

// guardCommand is what the server starts to outlive it; people do not.
func (c *cli) guardCommand() *cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use: "guard", Short: "Clear up after a server when it ends", Hidden: true, Args: arguments(0, 0),
		Example: "  tine guard --pid 4711",
		RunE:    func(*cobra.Command, []string) error { return keeper.Guard(pid) },
	}
	cmd.Flags().IntVar(&pid, "pid", 0, "process id of the server")
	must(cmd.MarkFlagRequired("pid"))
	return cmd
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Example: "  tine version --json", Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := buildinfo.Read()
			return c.print(v, func() {
				commit := v.Commit
				if commit != "" && v.Modified {
					commit += " (modified)"
				}
				c.fields("tine", v.Version, "commit", commit, "committed", v.Time, "built with", v.Go, "platform", v.OS+"/"+v.Arch)
			})
		},
	}
}

func (c *cli) doctorCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find out what this machine can do, and what to do where it cannot",
		Long: "Find out what this machine can do, and what to do where it cannot. Each finding comes from trying: a disk\n" +
			"is mounted and taken away, a file is written and removed. Nothing else is changed.\n\n" +
			"A `warn` is worth knowing. Only a `fail` keeps a server from working, and makes the exit code 1.",
		Example: "  tine doctor\n  tine doctor --json", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if data == "" {
				data = c.dataDir()
			}
			r := doctor.Run(cmd.Context(), doctor.Options{Data: data, Client: c.client(), Version: buildinfo.Read()})
			err := c.print(r, func() {
				rows := make([][]string, 0, len(r.Checks))
				for _, ch := range r.Checks {
					rows = append(rows, []string{string(ch.Status), ch.Name, ch.Detail})
					if ch.Fix != "" {
						rows = append(rows, []string{"", "", "-> " + ch.Fix})
					}
				}
				c.table([]string{"STATUS", "CHECK", "FOUND"}, rows)
			})
			if err == nil && r.Failed() > 0 {
				err = &silentError{exitCode(tine.KindInternal)}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the data directory to look at when no server runs")
	must(cmd.MarkFlagDirname("data"))
	return cmd
}
