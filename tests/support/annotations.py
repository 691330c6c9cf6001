"""The checker of annotations of a test run with JAXRBD_TEST_ANNOTATIONS=1."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
