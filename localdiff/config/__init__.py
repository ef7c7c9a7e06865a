"""Settings that are not typed: the configuration file, `LOCALDIFF_*` variables, and the defaults.

    keys         all settings: kind, variable, default
    file         `config.toml`, and the line of each entry
    environment  the variables
    edit         changes to its text; loads tomlkit, so it is imported only to change the file
    settings     precedence: variable, then file, then default (a flag overrides all of them)

Knows strings, numbers and where they came from; knows no command and nothing that acts on a setting. Imports no torch.
"""

from localdiff.config.environment import is_set, strange_variables
from localdiff.config.keys import KEYS, Key, name_settings
from localdiff.config.settings import Settings, load_settings, read_settings

__all__ = [
    "KEYS",
    "Key",
    "Settings",
    "is_set",
    "load_settings",
    "name_settings",
    "read_settings",
    "strange_variables",
]
